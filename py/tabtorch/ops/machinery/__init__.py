"""What the operations are made with: the registry, rows to functions, arguments, promotion, writes, the tape of rows."""
