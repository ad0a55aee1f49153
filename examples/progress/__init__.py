"""A web application that answers at once, does the work later, and shows how far it is."""
