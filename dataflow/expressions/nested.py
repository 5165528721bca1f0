"""``col(name).list`` and ``col(name).struct``: functions of lists and structs.

>>> import pyarrow as pa
>>> from dataflow.expressions import col
>>> batch = pa.record_batch({"s": [{"tags": ["a", "b"]}, {"tags": []}, None]})
>>> col("s").struct.field("tags").list.get(-1).evaluate(batch).to_pylist()
['b', None, None]
"""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.errors import GraphError
from dataflow.expressions.calls import Call, Function
from dataflow.expressions.nodes import Expr

__all__ = ["ListMethods", "StructMethods"]


@dataclass(frozen=True, slots=True, eq=False)
class ListMethods:
    """Functions of lists of any element type; a null gives null.

    >>> import pyarrow as pa
    >>> from dataflow.expressions import col
    >>> col("x").list.get(0).evaluate(pa.record_batch({"x": [[1, 2], None]})).to_pylist()
    [1, None]
    """

    _list: Expr

    def get(self, index: int) -> Expr:
        """Return the element at position ``index``, or null if the list has no such position.

        Args:
            index: a position from 0; a negative one counts from the end, -1 being the last element.

        Raises: TypeError if ``index`` is no int; GraphError if it does not fit 32 bits; SchemaMismatch, when it is
        used, if the column has no lists.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> batch = pa.record_batch({"x": [[1, 2], [3], [], None]})
        >>> col("x").list.get(1).evaluate(batch).to_pylist(), col("x").list.get(-1).evaluate(batch).to_pylist()
        ([2, None, None, None], [2, 3, None, None])
        """
        if type(index) is not int:
            raise TypeError(f"list.get takes a position, the same for every row, got {index!r}")
        if not -(2**31) < index < 2**31 - 1:
            raise GraphError(f"list.get: {index} does not fit 32 bits")
        return Call(Function.LIST_GET, (self._list,), (index,))


@dataclass(frozen=True, slots=True, eq=False)
class StructMethods:
    """Functions of structs; a null gives null.

    >>> import pyarrow as pa
    >>> from dataflow.expressions import col
    >>> col("s").struct.field("a").evaluate(pa.record_batch({"s": [{"a": 1}, {"a": None}, None]})).to_pylist()
    [1, None, None]
    """

    _struct: Expr

    def field(self, name: str) -> Expr:
        """Return the values of field ``name``; without an alias, the result has the field's name.

        Raises: TypeError if ``name`` is no text; SchemaMismatch, when it is used, if the column has no structs, or its
        structs no such field.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("s").struct.field("a").name
        'a'
        """
        if not isinstance(name, str):
            raise TypeError(f"struct.field takes a field's name, got {name!r}")
        return Call(Function.STRUCT_FIELD, (self._struct,), (name,))
