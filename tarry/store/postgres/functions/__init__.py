"""The functions of the PostgreSQL store: a file of SQL each, and how a schema gets them."""
