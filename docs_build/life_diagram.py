def draw() -> str:
    return ""
