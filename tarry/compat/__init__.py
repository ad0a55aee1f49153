"""The names of other libraries on top of tarry, so that an app can come over one import at a time."""
