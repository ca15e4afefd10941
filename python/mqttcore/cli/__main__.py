"""`python -m mqttcore.cli`."""

import sys

from mqttcore.cli import main

sys.exit(main())
