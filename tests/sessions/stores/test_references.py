"""Names and ids of campaigns: whatever a campaign is called, it never takes what was meant for another."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from cicpe.errors import InvalidInput
from cicpe.sessions.stores import Store, open_store
from cicpe.sessions.stores.references import check_name, read_reference
from cicpe.sessions.stores.schema import campaigns
from cicpe.sessions.stores.sql import SqlStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "a.db")
    yield opened
    opened.close()


def new(store: Store, name: str) -> str:
    return store.create(name=name, model="m", model_sha256="0" * 64, epsilon=0.1, delta=0.1).id


def rename(store: Store, campaign_id: str, name: str) -> None:
    """What an older version allowed."""
    assert isinstance(store, SqlStore)
    with store.engine.begin() as connection:
        connection.execute(sa.update(campaigns).where(campaigns.c.id == campaign_id).values(name=name))


def test_no_campaign_can_be_called_after_the_id_of_another(store: Store) -> None:
    first = new(store, "first")
    for name in (first, first.upper()):
        with pytest.raises(InvalidInput, match="does not look like the id"):
            new(store, name)
    assert [one.name for one in store.campaigns()] == ["first"]


def test_a_whole_id_is_an_id_even_where_an_older_version_took_it_for_a_name(store: Store) -> None:
    first, second = new(store, "first"), new(store, "second")
    rename(store, second, first)
    assert store.find(first).id == store.get(first).id == store.find(f"id:{first}").id == first
    assert store.find(f"name:{first}").id == second


def test_a_name_that_is_the_beginning_of_an_id_is_refused_and_not_guessed(store: Store) -> None:
    first = new(store, "first")
    second = new(store, first[:8])
    with pytest.raises(InvalidInput, match="may mean several") as caught:
        store.find(first[:8])
    assert f"id:{first}" in str(caught.value)
    assert f"name:{first[:8]}" in str(caught.value)
    assert store.find(f"id:{first[:8]}").id == first
    assert store.find(f"name:{first[:8]}").id == second


def test_get_takes_nothing_but_a_whole_id(store: Store) -> None:
    first = new(store, "first")
    assert store.get(first).name == "first"
    for wrong in ("first", first[:8], first.upper() + "0", f"id:{first}", "name:first", ""):
        with pytest.raises(InvalidInput, match="campaign"):
            store.get(wrong)


@pytest.mark.parametrize("wrong", ["id:", "name:", "id:first", "id:abc", "id:%%%%", "other:first", ":first"])
def test_what_means_no_campaign(store: Store, wrong: str) -> None:
    new(store, "first")
    with pytest.raises(InvalidInput, match="one of this store: first"):
        store.find(wrong)


def test_readings() -> None:
    assert read_reference("titan") == ("either", "titan")
    assert read_reference("beef") == ("either", "beef")
    assert read_reference("id:BEEF").as_id == "beef"
    assert read_reference("id:titan").as_id is read_reference("name:beef").as_id is None
    assert read_reference("a" * 32) == ("id", "a" * 32)
    assert read_reference("A" * 32).as_name is None
    assert check_name("2024") == "2024"
    assert check_name("a" * 31) == "a" * 31
