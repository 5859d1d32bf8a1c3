"""`python -m gtrun` is the command `gtrun`."""

from gtrun.cli import main

if __name__ == "__main__":
    main()
