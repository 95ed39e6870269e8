"""``python -m trnqc`` is the command ``trnqc``."""

import sys

from trnqc.cli import main

sys.exit(main())
