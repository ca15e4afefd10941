"""`make bench-broker`: the broker beside Mosquitto, as its own process, on a core of its own."""
