"""One recipe in many environments side by side, and what is blocked upstream until some version comes."""
