//! Schema resources: columns, keys, indexes and comments of tables.

use libris_core::{ContentBody, Context, Source as _};
use serde_json::{Value, json};

use crate::database::{Database, Engine, Shop, test_on};

const SHOP: &str = "
    CREATE TABLE customers (id integer PRIMARY KEY, name varchar(50) NOT NULL DEFAULT 'nobody');
    CREATE TABLE orders (id integer, line integer, customer integer NOT NULL, code varchar(9) NOT NULL,
        PRIMARY KEY (id, line), FOREIGN KEY (customer) REFERENCES customers (id));
    CREATE UNIQUE INDEX orders_code ON orders (code, line);
    CREATE INDEX orders_customer ON orders (customer);
    CREATE VIEW names AS SELECT name FROM customers;
    INSERT INTO customers VALUES (1, 'Ada')";

test_on!(tables_are_described, sqlite, needs_postgres, needs_mariadb);

async fn tables_are_described(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(SHOP).await;
    if engine == Engine::Postgres {
        database.execute("COMMENT ON TABLE orders IS 'What people bought'; ANALYZE").await;
        database.execute("COMMENT ON COLUMN orders.code IS 'Printed | on it'").await;
    }
    if engine == Engine::Mysql {
        database.execute("ALTER TABLE orders COMMENT 'What people bought'").await;
        database
            .execute("ALTER TABLE orders MODIFY code varchar(9) NOT NULL COMMENT 'Printed | on it'")
            .await;
    }
    let shop = database.source("");
    let schema: Value = serde_json::from_str(&shop.read("orders/schema?format=json").await).unwrap();
    let names: Vec<_> = schema["columns"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
    assert_eq!(names, ["id", "line", "customer", "code"], "{engine:?}");
    assert_eq!(schema["key"], json!(["id", "line"]));
    assert_eq!(schema["primaryKey"], true);
    assert_eq!(
        schema["foreignKeys"],
        json!([{ "columns": ["customer"], "table": "customers", "references": ["id"] }]),
        "{engine:?}"
    );
    let indexes = schema["indexes"].as_array().unwrap();
    let code = json!({ "name": "orders_code", "unique": true, "columns": ["code", "line"] });
    assert!(indexes.contains(&code), "{engine:?}: {indexes:?}");
    let customer = json!({ "name": "orders_customer", "unique": false, "columns": ["customer"] });
    assert!(indexes.contains(&customer), "{engine:?}: {indexes:?}");
    let markdown = shop.read("orders/schema").await;
    assert!(markdown.contains("- Primary key: id, line\n"), "{markdown}");
    assert!(markdown.contains("customer refers to id of customers"), "{markdown}");
    if engine != Engine::Sqlite {
        assert_eq!(schema["comment"], "What people bought");
        assert!(
            markdown.contains("What people bought") && markdown.contains("Printed \\| on it"),
            "{markdown}"
        );
    }
    let customers: Value = serde_json::from_str(&shop.read("customers/schema?format=json").await).unwrap();
    assert!(customers["columns"][1]["default"].as_str().unwrap().contains("nobody"), "{customers}");
    assert_eq!(customers["columns"][1]["nullable"], false);
    assert_eq!(customers["rowEstimate"], 1, "{engine:?}");
    let view: Value = serde_json::from_str(&shop.read("names/schema?format=json").await).unwrap();
    assert_eq!((&view["kind"], &view["key"]), (&json!("view"), &json!([])));
    let whole = shop.read("schema").await;
    for heading in ["## customers", "## names", "## orders", "2 tables, 1 view."] {
        assert!(whole.contains(heading), "{engine:?}: {whole}");
    }
    let whole: Value = serde_json::from_str(&shop.read("schema?format=json").await).unwrap();
    assert_eq!(whole["tables"].as_array().unwrap().len(), 3);
}

test_on!(what_is_not_allowed_does_not_exist, sqlite, needs_postgres, needs_mariadb);

async fn what_is_not_allowed_does_not_exist(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(SHOP).await;
    let shop = database.source("tables = [\"ord*\", \"names\"]");
    let listed: Vec<_> = shop
        .sql
        .list(None, 100, &Context::default())
        .await
        .unwrap()
        .resources
        .into_iter()
        .map(|resource| resource.uri)
        .collect();
    let expected = ["", "names/", "names/schema", "orders/", "orders/schema", "schema"];
    assert_eq!(listed, expected.map(|path| shop.uri(path)), "{engine:?}");
    for path in ["customers/schema", "customers/rows", "customers/rows/1"] {
        let error = shop.error(path).await;
        assert!(error.is_not_found(), "{engine:?}: {error:?}");
    }
    for path in ["schema", "schema?format=json", "orders/schema", "orders/schema?format=json"] {
        let text = shop.read(path).await;
        assert!(!text.contains("customers"), "{engine:?}: {path}: {text}");
    }
}

test_on!(the_folder_of_a_large_database_lists_its_tables, sqlite, needs_postgres, needs_mariadb);

async fn the_folder_of_a_large_database_lists_its_tables(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(SHOP).await;
    let shop = database.source("");
    let parts = async |shop: &Shop, path: &str| {
        shop.sql.read(&shop.uri(path), &Context::default()).await.unwrap().parts
    };
    let small = parts(&shop, "").await;
    assert_eq!(small[0].uri, shop.uri("schema"), "{engine:?}");
    assert_eq!(small, parts(&shop, "schema").await);

    let columns = (0..20).map(|n| format!("c{n} int")).collect::<Vec<_>>().join(", ");
    for table in 0..40 {
        database.execute(&format!("CREATE TABLE t{table:02} (id int PRIMARY KEY, {columns})")).await;
    }
    let shop = database.source("");
    let large = parts(&shop, "").await;
    let ContentBody::Text(list) = &large[0].body else { panic!("{large:?}") };
    assert_eq!((large.len(), &large[0].uri), (1, &shop.uri("")), "{engine:?}");
    assert!(list.contains(&format!("| t39 | table | {} |", shop.uri("t39/schema"))), "{list}");
    assert!(list.contains("42 tables, 1 view.") && !list.contains("c19"), "{list}");
    assert!(shop.read("schema").await.len() > 5 * list.len(), "{engine:?}: {list}");

    // Without views, the list does not say for each that it is a table.
    let shop = database.source("tables = [\"t*\"]");
    let large = parts(&shop, "").await;
    let ContentBody::Text(list) = &large[0].body else { panic!("{large:?}") };
    assert!(list.contains(&format!("| t39 | {} |", shop.uri("t39/schema"))), "{engine:?}: {list}");
}

test_on!(other_schemas_are_named, needs_postgres);

async fn other_schemas_are_named(engine: Engine) {
    let database = Database::new(engine).await;
    database
        .execute(
            "CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1);
             CREATE SCHEMA sales; CREATE TABLE sales.orders (id int PRIMARY KEY); INSERT INTO sales.orders VALUES (2);
             CREATE SCHEMA \"a.b\"; CREATE TABLE \"a.b\".\"c\"\"d\" (id int PRIMARY KEY)",
        )
        .await;
    let shop = database.source("");
    assert_eq!(shop.read("orders/rows/1").await, r#"{"id":1}"#);
    assert_eq!(shop.read("sales.orders/rows/2").await, r#"{"id":2}"#);
    assert!(shop.read("%22a.b%22.%22c%22%22d%22/schema").await.contains("Primary key: id"));
    assert!(shop.error("public.orders/rows/1").await.is_not_found());
    assert!(shop.error("pg_catalog.pg_authid/rows").await.is_not_found());
    assert!(shop.error("information_schema.tables/rows").await.is_not_found());
    let only = database.source("schemas = [\"sales\"]");
    assert!(only.error("orders/rows/1").await.is_not_found());
    assert_eq!(only.read("sales.orders/rows/2").await, r#"{"id":2}"#);
    assert_eq!(only.sql.list(None, 100, &Context::default()).await.unwrap().resources.len(), 4);
}

test_on!(other_databases_of_mysql_are_schemas, needs_mariadb);

async fn other_databases_of_mysql_are_schemas(engine: Engine) {
    let (one, two) = (Database::new(engine).await, Database::new(engine).await);
    one.execute("CREATE TABLE here (id int PRIMARY KEY); INSERT INTO here VALUES (1)").await;
    two.execute("CREATE TABLE there (id int PRIMARY KEY); INSERT INTO there VALUES (2)").await;
    let name = two.url.rsplit('/').next().unwrap().to_owned();
    let alone = one.source("");
    assert!(alone.error(&format!("{name}.there/rows/2")).await.is_not_found());
    let both = one.source(&format!("schemas = [\"{name}\"]"));
    assert_eq!(both.read(&format!("{name}.there/rows/2")).await, r#"{"id":2}"#);
    assert!(both.error("here/rows/1").await.is_not_found());
    assert!(both.error("mysql.user/rows").await.is_not_found());
}

test_on!(odd_names_are_names, sqlite, needs_postgres, needs_mariadb);

/// Tables whose names contain URI or SQL syntax are listed and read.
async fn odd_names_are_names(engine: Engine) {
    let names = [
        "a\"b",
        "Ünï",
        "select",
        "a/b%c",
        "x.y",
        "schema",
        "rows",
        "it's",
        "back`tick",
        "a;b",
        "--",
        " ",
        "?#&",
        "Select",
    ];
    let database = Database::new(engine).await;
    let quote = |name: &str| match engine {
        Engine::Mysql => format!("`{}`", name.replace('`', "``")),
        _ => format!("\"{}\"", name.replace('"', "\"\"")),
    };
    let possible = |name: &&&str| match engine {
        // SQLite ignores case in names, and MySQL allows no trailing space in them.
        Engine::Sqlite => **name != "Select",
        Engine::Mysql => **name != " ",
        Engine::Postgres => true,
    };
    let names: Vec<_> = names.iter().filter(possible).collect();
    for (at, name) in names.iter().enumerate() {
        let (table, column) = (quote(name), quote(&format!("c{name}")));
        let text = if engine == Engine::Mysql { "varchar(50)" } else { "text" };
        database.execute(&format!("CREATE TABLE {table} ({column} {text} PRIMARY KEY)")).await;
        database.execute(&format!("INSERT INTO {table} VALUES ('{at}')")).await;
    }
    let shop = database.source("");
    let listed = shop.sql.list(None, 100, &Context::default()).await.unwrap().resources;
    assert_eq!(listed.len(), 2 + 2 * names.len());
    let mut seen = 0;
    for resource in listed.iter().filter(|resource| resource.uri.path().ends_with('/')) {
        let rows = libris_core::Uri::parse(&format!("{}rows", resource.uri)).unwrap();
        let Ok(text) = shop.text(&rows).await else { continue };
        let rows: Value = serde_json::from_str(&text).unwrap();
        let row = rows["rows"][0].as_object().unwrap();
        let (column, at) = row.iter().next().unwrap();
        assert_eq!(*column, format!("c{}", names[at.as_str().unwrap().parse::<usize>().unwrap()]));
        seen += 1;
    }
    assert_eq!(seen, names.len(), "{engine:?}");
}

test_on!(columns_without_a_privilege_do_not_exist, needs_postgres, needs_mariadb);

/// A table of which the user may read only some columns has only these, and the keys and indexes of these.
async fn columns_without_a_privilege_do_not_exist(engine: Engine) {
    let database = Database::new(engine).await;
    let name = database.url.rsplit('/').next().unwrap().to_owned();
    let (admin, user, create) = match engine {
        Engine::Postgres => ("ada@", format!("some_{name}"), format!("CREATE ROLE some_{name} LOGIN")),
        _ => ("root@", format!("some_{name}@'%'"), format!("CREATE USER some_{name}@'%'")),
    };
    database
        .execute(&format!(
            "CREATE TABLE people (id integer PRIMARY KEY, name varchar(9) NOT NULL, salary integer CHECK (salary > 0));
             CREATE INDEX people_name ON people (name); CREATE INDEX people_salary ON people (salary, name);
             INSERT INTO people VALUES (1, 'Ada', 100), (2, 'Grace', 200);
             CREATE TABLE keyless (id integer PRIMARY KEY, open integer); INSERT INTO keyless VALUES (1, 7);
             CREATE TABLE hidden (id integer PRIMARY KEY);
             {create}; GRANT SELECT (id, name) ON people TO {user}; GRANT SELECT (open) ON keyless TO {user};
             GRANT INSERT ON hidden TO {user}"
        ))
        .await;
    let url = database.url.replace(admin, &format!("some_{name}@"));
    let shop = Database { url, ..database }.source("");
    assert_eq!(
        shop.read("people/rows").await,
        "{\"rows\":[\n{\"id\":1,\"name\":\"Ada\"},\n{\"id\":2,\"name\":\"Grace\"}]}",
        "{engine:?}"
    );
    assert_eq!(shop.read("people/rows/2").await, r#"{"id":2,"name":"Grace"}"#);
    assert_eq!(shop.read("people/rows?name=Ada").await, "{\"rows\":[\n{\"id\":1,\"name\":\"Ada\"}]}");
    let error = shop.error("people/rows?salary=100").await.to_string();
    assert!(error.starts_with("`people` has no column `salary`"), "{engine:?}: {error}");
    assert_eq!(shop.read("keyless/rows").await, "{\"rows\":[\n{\"open\":7}]}");
    assert!(shop.error("hidden/rows").await.is_not_found());
    let listed = shop.sql.list(None, 100, &Context::default()).await.unwrap().resources;
    assert!(!listed.iter().any(|resource| resource.uri.as_str().contains("hidden")), "{engine:?}");
    if engine == Engine::Postgres {
        let schema = shop.read("schema").await;
        assert!(!schema.contains("salary") && !schema.contains("hidden"), "{schema}");
    }
}

test_on!(definitions_do_not_name_hidden_tables, sqlite, needs_postgres, needs_mariadb);

/// The definition of a view is shown only if nothing is hidden by the configuration or from the caller.
async fn definitions_do_not_name_hidden_tables(engine: Engine) {
    struct Nothing;
    impl libris_core::Visibility for Nothing {
        fn sees(&self, _uri: &libris_core::Uri) -> bool {
            true
        }
    }
    let database = Database::new(engine).await;
    database.execute(SHOP).await;
    let whole = database.source("");
    assert!(whole.read("names/schema").await.contains("```sql\n"), "{engine:?}");
    let json: Value = serde_json::from_str(&whole.read("names/schema?format=json").await).unwrap();
    assert!(json["definition"].as_str().unwrap().contains("customers"), "{engine:?}: {json}");
    let part = database.source("tables = [\"names\"]");
    assert!(!part.read("names/schema").await.contains("customers"), "{engine:?}");
    let restricted = Context::default().with_visibility(std::sync::Arc::new(Nothing));
    for path in ["names/schema", "schema", "names/schema?format=json"] {
        let contents = whole.sql.read(&whole.uri(path), &restricted).await.unwrap();
        let libris_core::ContentBody::Text(text) = &contents.parts[0].body else { panic!() };
        assert!(!text.to_lowercase().contains("select "), "{engine:?}: {text}");
    }
}
