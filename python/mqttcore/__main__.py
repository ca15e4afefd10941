"""`python -m mqttcore`: the `mqttcore` command."""

import sys

from mqttcore.cli import main

sys.exit(main())
