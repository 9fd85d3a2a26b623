"""Random queries of every kind, and the same ones for pylance."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from lance.query import (
    BooleanQuery,
    BoostQuery,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
)
from lance.query import Occur as LanceOccur

from pennon.index.inverted.query import Boolean, Boost, Match, MultiMatch, Occur, Operator, Phrase, Query
from tests.index.inverted.corpus import COLUMN


def random_queries(words: Sequence[str], rounds: int, seed: int = 0, phrases: bool = True) -> Iterator[Query]:
    """`words` are ordered by frequency."""
    draw = random.Random(seed)
    for _ in range(rounds):
        some = " ".join(draw.choices(words[:400], k=draw.randint(1, 3)))
        often, rare = draw.choice(words[:40]), draw.choice(words[:400])
        yield Match(some)
        yield Match(some, operator=Operator.AND)
        yield Match(some, boost=draw.choice([0.0, 0.5, 2.5]))
        yield Match(f"{rare} {rare} {often}")
        expansions, prefix = draw.choice([1, 3, 50]), draw.choice([0, 1, 2])
        yield Match(some, fuzziness=1, max_expansions=expansions, prefix_length=prefix)
        yield Match(some, fuzziness=draw.choice([1, 2]), operator=Operator.AND)
        yield Boolean(((Occur.MUST, Match(often)), (Occur.SHOULD, Match(rare)), (Occur.SHOULD, Match(some))))
        yield Boolean(((Occur.MUST, Match(often)), (Occur.MUST_NOT, Match(rare))))
        yield Match(often) & Match(some)
        yield Match(often) | Match(rare)
        yield Boost(Match(often), Match(rare), negative_boost=0.3)
        yield MultiMatch(some, (COLUMN, COLUMN), (1.0, 2.0))
        if phrases:
            pair = " ".join(draw.choices(words[:12], k=draw.randint(2, 3)))
            yield Phrase(pair)
            # Of two terms: with more of them pylance misses documents, see test_search.
            yield Phrase(" ".join(draw.choices(words[:12], k=2)), slop=draw.choice([1, 3, 20]))
            yield Phrase(f"{words[draw.randrange(12)]} the {words[draw.randrange(12)]}")
            yield Match(often) | Phrase(pair)


def to_pylance(query: Query) -> FullTextQuery:
    match query:
        case Match():
            return MatchQuery(
                query.text,
                query.column or COLUMN,
                boost=query.boost,
                fuzziness=query.fuzziness,
                max_expansions=query.max_expansions,
                operator=FullTextOperator[query.operator.name],
                prefix_length=query.prefix_length,
            )
        case Phrase():
            return PhraseQuery(query.text, query.column or COLUMN, slop=query.slop)
        case Boost():
            return BoostQuery(
                to_pylance(query.positive), to_pylance(query.negative), negative_boost=query.negative_boost
            )
        case MultiMatch():
            boosts = None if query.boosts is None else list(query.boosts)
            operator = FullTextOperator[query.operator.name]
            return MultiMatchQuery(query.text, list(query.columns), boosts=boosts, operator=operator)
        case Boolean():
            return BooleanQuery([(LanceOccur[occur.name], to_pylance(part)) for occur, part in query.clauses])
        case _:
            raise TypeError(query)
