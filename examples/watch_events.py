"""An asyncio program with a broker: a plugin passes events to the event loop of the program."""

import asyncio
import sys
from collections.abc import Sequence

from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.plugin import Event, Plugin, hook


class Watcher(Plugin):
    """Puts events into a queue of another event loop."""

    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[Event]

    @hook.events("connected", "disconnected", every=0.01)
    def pass_on(self, events: Sequence[Event]) -> None:
        """Runs on a thread of the broker."""
        for event in events:
            self.loop.call_soon_threadsafe(self.queue.put_nowait, event)


async def main(address: str, count: int) -> None:
    """Prints the next events, then ends."""
    watcher = Watcher()
    watcher.loop = asyncio.get_running_loop()
    watcher.queue = asyncio.Queue()
    settings = Settings(listeners=(Listener(address=address, anonymous=True),))
    async with Broker(settings, plugins=[watcher]) as broker:
        print(f"listening on port {broker.port}", flush=True)
        for _ in range(count):
            event = await watcher.queue.get()
            print(event.kind, event.client_id, flush=True)


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:1883",
            int(sys.argv[2]) if len(sys.argv) > 2 else 100,
        )
    )
