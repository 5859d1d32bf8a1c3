"""The demo: gtrun's main job on real input, shown and checked. `scripts/demo` runs it."""
