"""SCRAM-SHA-256 as enhanced authentication: the hook asks the client, and waits for its answer.

`mqttcore.auth.scram` does this with a file of users.
"""

import os

from mqttcore.auth.scram import ClientFirst, Conversation, ScramError, Verifier
from mqttcore.plugin import Allow, Deny, Exchange, Grant, Plugin, hook

PASSWORDS = {"ann": "correct horse"}


class Scram(Plugin):
    async def start(self) -> None:
        self.known = {u: Verifier.of(p, salt=os.urandom(16)) for u, p in PASSWORDS.items()}
        self.nobody = Verifier.of(os.urandom(16).hex(), salt=os.urandom(16))

    @hook.enhanced_auth("SCRAM-SHA-256")
    async def talk(self, talk: Exchange) -> Allow | Deny:
        try:
            first = ClientFirst.parse(talk.data)
            verifier = self.known.get(first.user, self.nobody)
            server = Conversation(first, verifier)
            proof = await talk.challenge(server.challenge(), username=first.user)
            last = server.check(proof)
        except ScramError as error:
            return Deny("not_authorized", str(error))
        if last is None or verifier is self.nobody:
            return Deny("bad_credentials")
        return Allow(Grant(subscribe=["news/#"]), username=first.user, data=last)
