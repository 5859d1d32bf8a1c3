"""Installations of gtrun that are made of releases, and how one brings itself up to date.

ROOT/releases/COMMIT is one release: the package as that commit has it, and the program that starts it. It is never
changed again. ROOT/environments/HASH holds the packages of others, for all releases that need the same. ROOT/current
is a link to one release. docs/update.md tells all this in plain words.
"""
