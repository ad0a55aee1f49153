"""What a store of one's own is made of: `Store`, and what its verbs take and return."""

from tarry.store.rules.base import (
    BANDS,
    HIGH,
    LOW,
    NORMAL,
    PROMOTED_AT_ONCE,
    Backlog,
    Diagnostic,
    Exchange,
    NextClaim,
    PlaceAnswer,
    Query,
    Store,
    Tally,
    Want,
    band,
    drop_order,
)

__all__ = [
    "BANDS",
    "HIGH",
    "LOW",
    "NORMAL",
    "PROMOTED_AT_ONCE",
    "Backlog",
    "Diagnostic",
    "Exchange",
    "NextClaim",
    "PlaceAnswer",
    "Query",
    "Store",
    "Tally",
    "Want",
    "band",
    "drop_order",
]
