"""JSON Schema, as far as docs/json.schema.json uses it: what is wrong with a value, or None."""
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int, "number": (int, float)}
KNOWN = {"$schema", "$defs", "$ref", "title", "description", "type", "enum", "anyOf", "properties", "required", "additionalProperties", "items"}


def is_a(value, name):
    return isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name in ("integer", "number"))


def wrong(value, schema, root, at="$"):
    assert schema.keys() <= KNOWN, f"{at}: the schema has keys that are not checked: {schema.keys() - KNOWN}"
    if "$ref" in schema:
        return wrong(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
    if "anyOf" in schema:
        found = [wrong(value, one, root, at) for one in schema["anyOf"]]
        return None if None in found else f"{at}: none of {found}"
    if "enum" in schema:
        return None if value in schema["enum"] else f"{at}: {value!r} is none of {schema['enum']}"
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if not any(is_a(value, name) for name in names):
        return f"{at}: {value!r} is not {names}"
    if isinstance(value, list):
        return next((w for i, v in enumerate(value) if (w := wrong(v, schema["items"], root, f"{at}[{i}]"))), None)
    if not isinstance(value, dict):
        return None
    missing, more = set(schema["required"]) - value.keys(), value.keys() - schema["properties"].keys()
    if missing or more:
        return f"{at}: without {missing}, with {more}"
    return next((w for k, v in value.items() if (w := wrong(v, schema["properties"][k], root, f"{at}.{k}"))), None)
