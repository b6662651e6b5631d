"""Operations of clients over time: by client, by latency and rate, and what they left unread."""
