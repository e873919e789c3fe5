"""What is declared once and served everywhere: tools, resources, prompts, their schemas and dispatch."""
