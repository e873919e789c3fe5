"""The code tools in public repositories, against what compilers say and what the projects' own tests say."""
