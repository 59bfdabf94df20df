"""`python -m worldsize` is `worldsize`; torchrun starts workers this way."""

from worldsize.cli.app import main

main()
