"""A broker in a program: it listens, publishes, and lists its clients.

python examples/embedded.py 127.0.0.1:1883
"""

import sys
import time

from mqttcore import Broker, Settings
from mqttcore.config import Listener


def main(address: str, seconds: float) -> None:
    """Publishes the time once a second."""
    settings = Settings(listeners=(Listener(address=address, anonymous=True),))
    with Broker(settings) as broker:
        print(f"listening on port {broker.port}", flush=True)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            receivers = broker.publish("clock", time.strftime("%H:%M:%S"), retain=True)
            clients = [session.client_id for session in broker.clients() if session.connected]
            print(f"sent to {receivers} subscriptions; connected: {clients}", flush=True)
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:1883",
        float(sys.argv[2]) if len(sys.argv) > 2 else 60.0,
    )
