"""`python -m torchneuron`, the same as `torchneuron`."""

from torchneuron import main

main()
