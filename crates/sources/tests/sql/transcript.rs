//! What a client gets from a database: lists, templates, schemas, rows, filters and errors, as snapshots.

use std::fmt::Write as _;

use libris_core::{ContentBody, Context, Source as _};

use crate::database::{Database, Engine, Shop, test_on};

const SQLITE: &str = "
    CREATE TABLE artists (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE -- as printed on the cover
    );
    CREATE TABLE albums (id INTEGER PRIMARY KEY, title TEXT NOT NULL, artist INTEGER NOT NULL REFERENCES artists (id),
        price NUMERIC CHECK (price >= 0), state TEXT NOT NULL DEFAULT 'new',
        CONSTRAINT known_state CHECK (state IN ('new', 'sold out')));
    CREATE INDEX albums_title ON albums (title);
    CREATE INDEX albums_artist ON albums (artist);
    CREATE VIEW prices AS SELECT title, price FROM albums WHERE price IS NOT NULL;";

const POSTGRES: &str = "
    CREATE TYPE state AS ENUM ('new', 'sold out');
    CREATE DOMAIN amount AS numeric(8, 2) CHECK (VALUE >= 0);
    CREATE TABLE artists (id integer PRIMARY KEY, name text NOT NULL UNIQUE);
    CREATE TABLE albums (id integer PRIMARY KEY, title text NOT NULL, artist integer NOT NULL REFERENCES artists (id),
        price amount, state state NOT NULL DEFAULT 'new',
        CONSTRAINT sold_with_price CHECK (state = 'new' OR price IS NOT NULL));
    CREATE INDEX albums_title ON albums (title);
    CREATE INDEX albums_artist ON albums (artist);
    CREATE VIEW prices AS SELECT title, price FROM albums WHERE price IS NOT NULL;
    COMMENT ON TABLE albums IS 'Albums in the shop';
    COMMENT ON COLUMN albums.price IS 'In euros';
    COMMENT ON VIEW prices IS 'Albums that have a price';";

const MYSQL: &str = "
    CREATE TABLE artists (id integer PRIMARY KEY, name varchar(40) NOT NULL UNIQUE);
    CREATE TABLE albums (id integer PRIMARY KEY, title varchar(40) NOT NULL, artist integer NOT NULL,
        price decimal(8, 2) COMMENT 'In euros' CHECK (price >= 0), state enum('new', 'sold out') NOT NULL DEFAULT 'new',
        CONSTRAINT sold_with_price CHECK (state = 'new' OR price IS NOT NULL),
        CONSTRAINT by_artist FOREIGN KEY (artist) REFERENCES artists (id)) COMMENT 'Albums in the shop';
    CREATE INDEX albums_title ON albums (title);
    CREATE VIEW prices AS SELECT title, price FROM albums WHERE price IS NOT NULL;";

const ROWS: &str = "
    INSERT INTO artists VALUES (1, 'Björk');
    INSERT INTO albums VALUES (1, 'Debut', 1, 9.5, 'new'), (2, 'Post', 1, NULL, 'new'), (3, 'Homogenic', 1, 12, 'sold out')";

/// The paths that are read, in this order.
const PATHS: [&str; 20] = [
    "",
    "schema",
    "albums/schema?format=json",
    "artists/",
    "albums/rows?limit=2",
    "albums/rows?after=2&limit=2",
    "albums/rows?format=csv",
    "albums/rows?format=markdown&limit=1",
    "albums/rows/3",
    "albums/rows?title=Homogenic",
    "albums/rows?artist=1&limit=1",
    "prices/rows",
    "album/rows",
    "albums/row/3",
    "albums/rows/9",
    "albums/rows/Homogenic",
    "albums/rows?Title=Homogenic",
    "albums/rows?price=12",
    "albums/schema?lines=1",
    "prices/rows/1",
];

test_on!(a_client_reads_a_database, sqlite, needs_postgres, needs_mariadb);

async fn a_client_reads_a_database(engine: Engine) {
    let database = Database::new(engine).await;
    let (name, tables) = match engine {
        Engine::Sqlite => ("sqlite", SQLITE),
        Engine::Postgres => ("postgres", POSTGRES),
        Engine::Mysql => ("mariadb", MYSQL),
    };
    database.execute(&format!("{tables}{ROWS}")).await;
    let analyze = if engine == Engine::Mysql { "ANALYZE TABLE artists, albums" } else { "ANALYZE" };
    database.execute(analyze).await;
    let text = transcript(&database.source("title = \"Record shop\"")).await;
    let own = database.url.rsplit('/').next().unwrap_or_default();
    let text = match engine {
        // It names the database in the definitions of views.
        Engine::Mysql => text.replace(own, "shop"),
        // Before version 16, it names the table of every column in the definition of a view.
        Engine::Postgres => text.replace("albums.title", "title").replace("albums.price", "price"),
        Engine::Sqlite => text,
    };
    insta::assert_snapshot!(name, text);
}

async fn transcript(shop: &Shop) -> String {
    let mut text = "list\n".to_owned();
    for resource in shop.sql.list(None, 100, &Context::default()).await.unwrap().resources {
        let title = resource.title.as_deref().unwrap_or(&resource.name);
        let _ = write!(text, "  {}  {}  {title}", resource.uri, resource.mime.unwrap_or_default());
        let _ =
            writeln!(text, "{}", resource.description.map(|text| format!(": {text}")).unwrap_or_default());
    }
    text.push_str("\ntemplates\n");
    for template in shop.sql.templates(&Context::default()).await.unwrap().templates {
        let description = template.description.unwrap_or_default();
        let _ = writeln!(text, "  {}  {}: {description}", template.uri, template.name);
    }
    for path in PATHS {
        let uri = shop.uri(path);
        let _ = writeln!(text, "\nread {uri}");
        match shop.sql.read(&uri, &Context::default()).await {
            Err(error) => {
                let _ = writeln!(text, "  error: {error}");
            }
            Ok(contents) => {
                for part in contents.parts {
                    let ContentBody::Text(body) = part.body else { panic!("{uri} is not text") };
                    let _ = writeln!(text, "  {}  {}", part.uri, part.mime.unwrap_or_default());
                    for line in body.lines() {
                        let _ = writeln!(text, "{}", format!("    {line}").trim_end());
                    }
                    for (key, value) in part.meta.iter().flatten() {
                        let _ = writeln!(text, "  _meta {key}: {value}");
                    }
                }
            }
        }
    }
    text
}
