"""gymshm inside other libraries, one module for each; nothing here is imported unless a user imports it."""
