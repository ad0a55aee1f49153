"""Webhooks for your customers: signed, sent again until they are taken; no customer waits for another."""
