"""What tests of terminals need: a pseudo-terminal, which a chroot without /dev/pts does not have."""
import os
import pty

import pytest


def has_terminal():
    try:
        for fd in pty.openpty():
            os.close(fd)
    except OSError:
        return False
    return True


needs_terminal = pytest.mark.skipif(not has_terminal(), reason="no pseudo-terminal")
