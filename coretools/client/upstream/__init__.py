"""Tools of other servers, offered by ours."""
