"""The promises about limits, lanes and places (promise 8 of `rules.base`), for `tarry.store.conformance`."""
