"""Operations of clients over time: by client, by latency and rate; and the records left unread."""
