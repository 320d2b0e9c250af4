"""The subject: a model, the shapes it must accept, and how to make legal inputs for them."""
