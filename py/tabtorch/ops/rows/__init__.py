"""The elementwise table: one row an operation, with its formula, its gradient and its rule of types."""
