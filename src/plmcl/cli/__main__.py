"""`python -m plmcl.cli`: the console script."""

from plmcl.cli import main

if __name__ == "__main__":
    main()
