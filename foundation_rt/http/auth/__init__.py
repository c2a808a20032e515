"""Authentication of clients: tokens, keys, the documents of OAuth."""
