"""One file, to be read: check_bundle.py."""
