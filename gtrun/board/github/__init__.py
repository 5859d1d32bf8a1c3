"""GitHub Issues as a board, on GitHub.com and GitHub Enterprise: https://docs.github.com/rest

`board` is what others open. Nothing else here is imported before that, since the HTTP client takes 50 ms to load.
"""
