"""Finetuning from files of rows: prompts and completions, chats, texts, and labeled texts and pictures."""
