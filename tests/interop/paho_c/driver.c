/* Paho C, its synchronous library: cc driver.c -o driver -lpaho-mqtt3c */
#define _GNU_SOURCE
#include <MQTTClient.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 10000
#define NAME_BYTES 256

static const char *host, *port, *transport, *prefix;
static int version;
static char why[512];

/* A failed step says why and leaves the check. */
#define TRY(step) \
    do { \
        if (!(step)) return fail(#step); \
    } while (0)

static bool fail(const char *step) {
    if (!why[0]) snprintf(why, sizeof why, "%s", step);
    return false;
}

struct peer { MQTTClient client; bool is_open; };
static struct peer peers[8];
static int opened;

static void name_of(char *out, const char *separator, const char *name) {
    snprintf(out, NAME_BYTES, "%s%s%s", prefix, separator, name);
}

static bool connect_peer(struct peer *peer, const char *name, bool clean, const char *will, int *present) {
    char uri[NAME_BYTES], id[NAME_BYTES];
    bool encrypted = strcmp(transport, "tls") == 0 || strcmp(transport, "wss") == 0;
    bool framed = strcmp(transport, "websocket") == 0 || strcmp(transport, "wss") == 0;
    const char *scheme = framed ? (encrypted ? "wss" : "ws") : (encrypted ? "ssl" : "tcp");
    snprintf(uri, sizeof uri, "%s://%s:%s%s", scheme, host, port, framed ? "/mqtt" : "");
    name_of(id, "-", name);
    MQTTClient_createOptions create = MQTTClient_createOptions_initializer;
    create.MQTTVersion = version;
    TRY(MQTTClient_createWithOptions(&peer->client, uri, id, MQTTCLIENT_PERSISTENCE_NONE, NULL, &create) == 0);
    MQTTClient_connectOptions plain3 = MQTTClient_connectOptions_initializer;
    MQTTClient_connectOptions plain5 = MQTTClient_connectOptions_initializer5;
    MQTTClient_connectOptions framed3 = MQTTClient_connectOptions_initializer_ws;
    MQTTClient_connectOptions framed5 = MQTTClient_connectOptions_initializer5_ws;
    MQTTClient_connectOptions options =
        version == 5 ? (framed ? framed5 : plain5) : (framed ? framed3 : plain3);
    options.MQTTVersion = version;
    options.connectTimeout = PATIENCE_MS / 1000;
    options.keepAliveInterval = 30;
    MQTTClient_SSLOptions tls = MQTTClient_SSLOptions_initializer;
    if (encrypted) {
        tls.trustStore = getenv("SSL_CERT_FILE");
        tls.verify = 1;
        options.ssl = &tls;
    }
    MQTTClient_willOptions last = MQTTClient_willOptions_initializer;
    if (will) {
        last.topicName = will;
        last.message = "gone";
        last.qos = 1;
        options.will = &last;
    }
    int code;
    if (version == 5) {
        MQTTProperties properties = MQTTProperties_initializer;
        MQTTProperty kept = {.identifier = MQTTPROPERTY_CODE_SESSION_EXPIRY_INTERVAL};
        kept.value.integer4 = clean ? 0 : 60;
        MQTTProperties_add(&properties, &kept);
        options.cleanstart = clean;
        MQTTResponse response = MQTTClient_connect5(peer->client, &options, &properties, NULL);
        code = response.reasonCode;
        MQTTResponse_free(response);
        MQTTProperties_free(&properties);
    } else {
        options.cleansession = clean;
        code = MQTTClient_connect(peer->client, &options);
    }
    peer->is_open = code == 0;
    if (code) snprintf(why, sizeof why, "connect: code %d", code);
    if (present) *present = options.returned.sessionPresent;
    return code == 0;
}

static struct peer *open_peer(const char *name) {
    struct peer *peer = &peers[opened++];
    return connect_peer(peer, name, true, NULL, NULL) ? peer : NULL;
}

static bool close_peer(struct peer *peer) {
    int code = 0;
    if (peer->is_open)
        code = version == 5 ? MQTTClient_disconnect5(peer->client, PATIENCE_MS, MQTTREASONCODE_SUCCESS, NULL)
                            : MQTTClient_disconnect(peer->client, PATIENCE_MS);
    if (peer->client) MQTTClient_destroy(&peer->client);
    peer->is_open = false;
    return code == 0;
}

static bool subscribe(struct peer *peer, const char *filter, int qos) {
    if (version < 5) return MQTTClient_subscribe(peer->client, filter, qos) == 0;
    MQTTResponse response = MQTTClient_subscribe5(peer->client, filter, qos, NULL, NULL);
    int code = response.reasonCode;
    MQTTResponse_free(response);
    return code == qos;
}

static bool publish(struct peer *peer, const char *topic, const char *payload, int qos, bool retain) {
    MQTTClient_deliveryToken token;
    int code;
    if (version == 5) {
        MQTTResponse response = MQTTClient_publish5(
            peer->client, topic, (int)strlen(payload), payload, qos, retain, NULL, &token);
        code = response.reasonCode;
        MQTTResponse_free(response);
    } else {
        code = MQTTClient_publish(peer->client, topic, (int)strlen(payload), payload, qos, retain, &token);
    }
    return code == 0 && (qos == 0 || MQTTClient_waitForCompletion(peer->client, token, PATIENCE_MS) == 0);
}

/* The next message is exactly this one. */
static bool next_is(struct peer *peer, const char *topic, const char *payload, int qos, bool retain) {
    char *found_topic = NULL;
    int topic_len = 0;
    MQTTClient_message *found = NULL;
    int code = MQTTClient_receive(peer->client, &found_topic, &topic_len, &found, PATIENCE_MS);
    if (!found) {
        snprintf(why, sizeof why, "nothing came for %s %s, code %d", topic, payload, code);
        return false;
    }
    bool is_it = strcmp(found_topic, topic) == 0 && found->payloadlen == (int)strlen(payload)
        && memcmp(found->payload, payload, strlen(payload)) == 0 && found->qos == qos && found->retained == retain;
    if (!is_it)
        snprintf(why, sizeof why, "wanted %s %s, got %s %.*s at QoS %d", topic, payload, found_topic,
                 found->payloadlen, (char *)found->payload, found->qos);
    MQTTClient_freeMessage(&found);
    MQTTClient_free(found_topic);
    return is_it;
}

static bool check_connect(void) {
    TRY(open_peer("connect"));
    return true;
}

static bool check_echo(int qos) {
    char topic[NAME_BYTES], name[8], number[4];
    snprintf(name, sizeof name, "qos%d", qos);
    name_of(topic, "/", name);
    struct peer *one = open_peer(name);
    TRY(one && subscribe(one, topic, qos));
    for (int n = 0; n < 10; n++) {
        snprintf(number, sizeof number, "%d", n);
        TRY(publish(one, topic, number, qos, false));
    }
    for (int n = 0; n < 10; n++) {
        snprintf(number, sizeof number, "%d", n);
        TRY(next_is(one, topic, number, qos, false));
    }
    return true;
}

static bool check_qos0(void) { return check_echo(0); }
static bool check_qos1(void) { return check_echo(1); }
static bool check_qos2(void) { return check_echo(2); }

static bool check_retained(void) {
    char topic[NAME_BYTES];
    name_of(topic, "/", "retained");
    struct peer *one = open_peer("retained");
    TRY(one && publish(one, topic, "kept", 1, true));
    TRY(subscribe(one, topic, 1));
    TRY(next_is(one, topic, "kept", 1, true));
    TRY(publish(one, topic, "", 1, true));
    TRY(next_is(one, topic, "", 1, false));
    return true;
}

/* The program itself, told to connect with a will; it is killed when it has. */
static bool leave(void) {
    char topic[NAME_BYTES];
    name_of(topic, "/", "will");
    struct peer *one = &peers[opened++];
    TRY(connect_peer(one, "leaver", true, topic, NULL));
    TRY(write(STDOUT_FILENO, "!", 1) == 1);
    pause();
    return false;
}

static bool check_will(void) {
    char topic[NAME_BYTES], number[4], byte;
    int ends[2];
    name_of(topic, "/", "will");
    struct peer *watcher = open_peer("watcher");
    TRY(watcher && subscribe(watcher, topic, 1));
    TRY(pipe2(ends, O_CLOEXEC) == 0);
    snprintf(number, sizeof number, "%d", version);
    pid_t child = fork();
    TRY(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "driver", host, port, number, transport, prefix, "leave", (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    bool is_there = read(ends[0], &byte, 1) == 1;
    close(ends[0]);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    TRY(is_there);
    return next_is(watcher, topic, "gone", 1, false);
}

static bool check_resume(void) {
    char topic[NAME_BYTES], number[4];
    int present = -1;
    name_of(topic, "/", "resume");
    struct peer *first = &peers[opened++], *second = &peers[opened++];
    TRY(connect_peer(first, "resume", false, NULL, NULL));
    TRY(subscribe(first, topic, 1));
    TRY(close_peer(first));
    struct peer *sender = open_peer("sender");
    TRY(sender);
    for (int n = 0; n < 3; n++) {
        snprintf(number, sizeof number, "%d", n);
        TRY(publish(sender, topic, number, 1, false));
    }
    TRY(connect_peer(second, "resume", false, NULL, &present));
    /* The library reads the flag of 3.1.1 only. */
    TRY(version == 5 || present == (version == 4));
    for (int n = 0; n < 3; n++) {
        snprintf(number, sizeof number, "%d", n);
        TRY(next_is(second, topic, number, 1, false));
    }
    return true;
}

static bool check_shared(void) {
    char topic[NAME_BYTES], filter[NAME_BYTES + 16], number[4];
    name_of(topic, "/", "shared");
    snprintf(filter, sizeof filter, "$share/group/%s", topic);
    struct peer *members[2] = {open_peer("member0"), open_peer("member1")};
    TRY(members[0] && members[1]);
    TRY(subscribe(members[0], filter, 1) && subscribe(members[1], filter, 1));
    struct peer *sender = open_peer("dealer");
    TRY(sender);
    for (int n = 0; n < 10; n++) {
        snprintf(number, sizeof number, "%d", n);
        TRY(publish(sender, topic, number, 1, false));
    }
    int seen = 0;
    for (int n = 0; n < 10; n++) {
        char *found_topic = NULL;
        int topic_len = 0;
        MQTTClient_message *found = NULL;
        MQTTClient_receive(members[n % 2]->client, &found_topic, &topic_len, &found, PATIENCE_MS);
        TRY(found && found->payloadlen == 1);
        seen |= 1 << (*(char *)found->payload - '0');
        MQTTClient_freeMessage(&found);
        MQTTClient_free(found_topic);
    }
    TRY(seen == 0x3FF);
    return true;
}

static void attempt(const char *name, bool (*check)(void)) {
    why[0] = 0;
    opened = 0;
    memset(peers, 0, sizeof peers);
    bool ok = check();
    while (opened > 0) close_peer(&peers[--opened]);
    for (char *at = why; *at; at++)
        if (*at == '"' || *at == '\\') *at = '\'';
    printf(ok ? "{\"check\": \"%s\", \"ok\": true}\n" : "{\"check\": \"%s\", \"ok\": false, \"why\": \"%s\"}\n", name, why);
    fflush(stdout);
}

int main(int count, char **words) {
    if (count < 6) return 2;
    host = words[1], port = words[2], transport = words[4], prefix = words[5];
    version = atoi(words[3]);
    if (count > 6) return leave() ? 0 : 1;
    const char *library = "unknown";
    for (MQTTClient_nameValue *info = MQTTClient_getVersionInfo(); info->name; info++)
        if (strcmp(info->name, "Version") == 0) library = info->value;
    printf("{\"client\": \"Paho C\", \"version\": \"%s\"}\n", library);
    attempt("connect", check_connect);
    attempt("qos0", check_qos0);
    attempt("qos1", check_qos1);
    attempt("qos2", check_qos2);
    attempt("retained", check_retained);
    attempt("will", check_will);
    attempt("resume", check_resume);
    if (version == 5) attempt("shared", check_shared);
    return 0;
}
