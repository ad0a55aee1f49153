"""Commands for whoever begins: try tarry, start a project, see what to do first, complete words in a shell."""
