"""`python -m gridpool` is the command `gridpool`."""

from ._binary import main

main()
