"""What the documentation site has besides docs/: pages written from the code, and files of the repository."""
