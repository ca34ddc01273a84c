"""`python -m daisychain.cli`: the same as `daisychain`."""

from daisychain.cli.main import main

main()
