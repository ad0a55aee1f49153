"""The promises about flows, steps and signals (`tarry.store.flows`), for `tarry.store.conformance`."""
