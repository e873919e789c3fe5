"""git in repositories that are not trusted."""
