"""The clones that an agent works in: what is in them is set aside, then they are brought to the remote's state.

One rule: what cannot be proven to be kept is not touched. The run then works in a fresh worktree, and says so.
"""
