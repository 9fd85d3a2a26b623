"""`python -m pennon` is the command `pennon`."""

from pennon.cli import main

if __name__ == "__main__":
    main(prog_name="pennon")
