"""Every normative statement of MQTT 3.1.1 and 5.0 against a running broker."""
