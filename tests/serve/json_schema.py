# SPDX-License-Identifier: Apache-2.0
"""As much of JSON Schema as docs/openapi.json uses. A keyword that is not known here is an error, so that nothing passes unread."""
import re

ANNOTATIONS = {'description'}
TYPES = {'object': dict, 'array': list, 'string': str, 'boolean': bool, 'null': type(None), 'number': (int, float), 'integer': int}


class Schemas:
    def __init__(self, document):
        self.document = document

    def resolve(self, reference):
        node = self.document
        for part in reference.removeprefix('#/').split('/'):
            node = node[part]
        return node

    def faults(self, schema, value, where='$'):
        """What is wrong with a value, as lines; none: it fits."""
        found = []
        for keyword, wanted in schema.items():
            if keyword not in ANNOTATIONS:
                found += getattr(self, 'check_' + keyword.strip('$'))(wanted, value, where, schema)
        return found

    def check_ref(self, wanted, value, where, _):
        return self.faults(self.resolve(wanted), value, where)

    def check_type(self, wanted, value, where, _):
        names = wanted if isinstance(wanted, list) else [wanted]
        good = any(isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name in ('number', 'integer')) for name in names)
        return [] if good else [f'{where}: {value!r} is no {" or ".join(names)}']

    def check_enum(self, wanted, value, where, _):
        return [] if value in wanted else [f'{where}: {value!r} is none of {wanted}']

    def check_const(self, wanted, value, where, _):
        return [] if value == wanted and type(value) is type(wanted) else [f'{where}: {value!r} is not {wanted!r}']

    def check_oneOf(self, wanted, value, where, _):
        all_faults = [self.faults(one, value, where) for one in wanted]
        fitting = sum(not faults for faults in all_faults)
        return [] if fitting == 1 else [f'{where}: {fitting} of {len(wanted)} forms fit'] + sum(all_faults, [])[:4]

    def check_properties(self, wanted, value, where, _):
        if not isinstance(value, dict):
            return []
        return sum((self.faults(wanted[name], inner, f'{where}.{name}') for name, inner in value.items() if name in wanted), [])

    def check_patternProperties(self, wanted, value, where, _):
        pairs = [(name, inner, one) for name, inner in value.items() for pattern, one in wanted.items() if re.search(pattern, name)]
        return sum((self.faults(one, inner, f'{where}.{name}') for name, inner, one in pairs), [])

    def check_required(self, wanted, value, where, _):
        return [f'{where}.{name} is missing' for name in wanted if isinstance(value, dict) and name not in value]

    def check_additionalProperties(self, wanted, value, where, schema):
        if not isinstance(value, dict):
            return []
        patterns = schema.get('patternProperties', {})
        more = [name for name in value if name not in schema.get('properties', {}) and not any(re.search(p, name) for p in patterns)]
        if wanted is False:
            return [f'{where}.{name} is not described' for name in more]
        return sum((self.faults(wanted, value[name], f'{where}.{name}') for name in more), [])

    def check_items(self, wanted, value, where, _):
        return sum((self.faults(wanted, inner, f'{where}[{n}]') for n, inner in enumerate(value)), []) if isinstance(value, list) else []

    def check_minItems(self, wanted, value, where, _):
        return [f'{where}: fewer than {wanted}'] if isinstance(value, list) and len(value) < wanted else []

    def check_maxItems(self, wanted, value, where, _):
        return [f'{where}: more than {wanted}'] if isinstance(value, list) and len(value) > wanted else []

    def check_minLength(self, wanted, value, where, _):
        return [f'{where}: shorter than {wanted}'] if isinstance(value, str) and len(value) < wanted else []

    def check_minimum(self, wanted, value, where, _):
        return [f'{where}: {value} is below {wanted}'] if isinstance(value, (int, float)) and value < wanted else []

    def check_maximum(self, wanted, value, where, _):
        return [f'{where}: {value} is above {wanted}'] if isinstance(value, (int, float)) and value > wanted else []

    def check_pattern(self, wanted, value, where, _):
        return [f'{where}: {value!r} does not match {wanted}'] if isinstance(value, str) and not re.search(wanted, value) else []
