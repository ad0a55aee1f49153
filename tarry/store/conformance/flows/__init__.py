"""The promises about flows, steps and signals (`tarry.store.rules.flows`), for `tarry.store.conformance`."""
