"""The store in MySQL or MariaDB."""
